"""A sweep's result as pictures: in the terminal, as PNG or SVG, or as one page."""
