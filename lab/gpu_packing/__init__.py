"""How full a GPU cluster gets when pods arrive one by one and none leaves, on the OpenB trace."""
