"""beanstalkd's protocol. Sans-IO."""
