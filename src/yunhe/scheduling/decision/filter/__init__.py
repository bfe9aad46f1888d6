"""The rules that refuse a pool or a node, and the reasons they give."""
