"""ClusterColocationProfiles: what they write into new pods, and the policies that do so."""
