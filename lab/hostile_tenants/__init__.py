"""How much of its rate a tenant's stream of jobs keeps beside tenants that attack their host."""
