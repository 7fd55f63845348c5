"""A backend, a kernel and a scheme for tilework."""
