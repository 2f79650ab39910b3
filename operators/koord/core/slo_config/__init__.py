"""The settings of Koordinator's ConfigMap ``slo-controller-config``, as they are in force."""
