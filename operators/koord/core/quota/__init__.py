"""ElasticQuota: the tree, what each quota may use now, who is admitted, and who has too much."""
