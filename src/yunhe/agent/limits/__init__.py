"""How an allocation's limits are kept: control groups, or rlimits without them."""
