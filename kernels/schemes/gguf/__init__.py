"""GGUF's block types as schemes whose codes are the bytes of the blocks."""
