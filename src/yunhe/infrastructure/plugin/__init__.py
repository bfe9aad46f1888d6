"""What a plugin needs to be its own process: ``serve_plugin`` serves any ``Kind`` over gRPC and registers it."""
