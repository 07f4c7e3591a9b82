"""Several pods on Redis: each as other pods use it, and the messages between them."""
