# Kubernetes lets a namespace that is being deleted be for five seconds, for other API servers and other members of etcd to see
# that it is. A management cluster of the local region has one of each, and a cluster that is deleted waits for two namespaces,
# one after the other.
s/namespaceDeletionGracePeriod = 5 \* time\.Second$/namespaceDeletionGracePeriod = 500 * time.Millisecond/
