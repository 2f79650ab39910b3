"""Every label, annotation and condition type that the operators read or write, by feature.

What Koordinator defines is spelled as it spells it; what is ours stands in `own`. Values are not
parsed here.
"""
