"""What a client may change in its work so that less is given away."""
