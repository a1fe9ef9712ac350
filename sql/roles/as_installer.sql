-- From here on statements run as the role that installs.
reset role;
