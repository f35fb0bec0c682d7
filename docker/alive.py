"""Whether this container's Airflow service works: `python docker/alive.py SchedulerJob`.

Exit code 0 if the service has reported to Airflow's database within LATE seconds, else 1. `airflow jobs check` asks the
same, but it imports all of Airflow first, which takes twenty times the CPU time.
"""

from __future__ import annotations

import os
import socket
import sys

import psycopg2

LATE = 60  # seconds; Airflow's services report every 5 s
ASK = """
SELECT count(*) FROM job
WHERE job_type = %s AND hostname = %s AND state = 'running' AND latest_heartbeat > now() - %s * interval '1 second'
"""


def alive(job: str) -> bool:
    """Whether this machine's job of that type has reported lately. Raises psycopg2.Error without a database."""
    address = os.environ["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"].replace("+psycopg2", "", 1)
    with psycopg2.connect(address, connect_timeout=5) as connection, connection.cursor() as cursor:
        cursor.execute(ASK, (job, socket.gethostname(), LATE))
        found = cursor.fetchone()
    return found is not None and found[0] > 0


if __name__ == "__main__":
    sys.exit(not alive(sys.argv[1]))
