"""What the tests share. Folders: networks to run, oracles and judges that say what is right, programs, hostile files."""
