"""What makes nodes a cluster, over their logs and their connections.

`facts` keeps what a node must know before anybody tells it, `joining` makes its view of the cluster at the start, and `port`
drives that view by connections and the clock.
"""
