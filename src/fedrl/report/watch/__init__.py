"""`fedrl watch`: one page on loopback that follows runs while they are written."""
