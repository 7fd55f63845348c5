"""Language models: the small one that is made here, text from the command line, and what formats cost in perplexity."""
