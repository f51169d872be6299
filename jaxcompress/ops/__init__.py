"""Operations on arrays of one device: selecting, rounding, packing, orthogonalising. No axis names here."""
