"""The beanstalkd front end without a socket."""
