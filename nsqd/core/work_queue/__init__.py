"""A tube of beanstalkd: its jobs, its workers, and the actions of operators. Read `tube.py` first."""
