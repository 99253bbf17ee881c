"""The backend for CPUs: a kernel in C, called through ctypes."""
