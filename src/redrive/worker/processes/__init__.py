"""Jobs in processes of their own: the pool, its processes, and what runs inside them."""
