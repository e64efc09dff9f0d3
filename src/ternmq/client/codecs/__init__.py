"""Bodies: what applications hand over becomes bytes, and bytes become what they asked for."""
