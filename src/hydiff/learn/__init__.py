"""The parts that need torch: networks, losses, diffusion, and the engine that trains."""
