"""Implement the server's side of beanstalkd's protocol, without input or output."""
