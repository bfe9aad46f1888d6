"""Made by tools/generate_contract.py from proto/yunhe/engine/v1/engine.proto; not edited by hand."""
