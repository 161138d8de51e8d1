"""A tube of beanstalkd: its jobs, its workers, and what operators do to them. Read `tube.py` first."""
