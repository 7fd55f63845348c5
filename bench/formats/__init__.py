"""`tilework bench formats` and `tilework bench accuracy`: block types of GGUF beside the package gguf, and what schemes cost."""
