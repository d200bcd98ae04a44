"""What needs torch: networks, losses, diffusion, and the engine that trains them."""
