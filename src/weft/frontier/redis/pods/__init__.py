"""Several pods on Redis: each as the others see it, and what goes between them."""
