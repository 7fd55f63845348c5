"""Random models of one operator of ONNX's own domain, at every opset that is read, against two references."""
