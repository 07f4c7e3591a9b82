"""The transport on libcurl."""
