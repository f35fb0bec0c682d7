"""The files that spark-submit is given; nothing imports them."""
