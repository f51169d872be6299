"""Operations on the arrays of one device: select, round, pack, orthogonalise. No axis names."""
