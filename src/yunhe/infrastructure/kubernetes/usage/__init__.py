"""What pods and nodes use, and the meters kept from it."""
