"""The flexible-computing engine: samples in, estimates out, calls nobody."""
