"""Helpers that several tests share: toy federations, transcriptions, terminals, rehearsals over Flower."""
