// What the answer about usage looks like: only the fields that the page shows.

export interface UsageLine {
  held: number;
  hours: string;
}

export interface UsageQuota extends UsageLine {
  quota: string | null;
  /** How many quotas of the report are above it. */
  depth: number;
  used: number | null;
  guaranteed: number | null;
  withinMin: number | null;
  borrowed: number | null;
  owed: number | null;
  idleMin: number | null;
  lent: number | null;
}

export interface UsageNamespace extends UsageLine {
  namespace: string | null;
}

export interface UsageUser extends UsageLine {
  user: string | null;
}

export interface UsageJob extends UsageLine {
  owner: string | null;
}

export interface UsageModel extends UsageLine {
  model: string | null;
}

export interface UsageLoss {
  cause: string;
  basis: string;
  by: string | null;
  lost: number;
}

export interface UsageLoser {
  owner: string | null;
  lost: number;
}

export interface UsageCluster {
  model: string;
  used: number;
  reserved: number;
  idle: number;
  unusable: number;
  broken: number;
  down: number;
}

export interface UsageReport {
  from: string;
  to: string;
  held: number;
  hours: string;
  quotas: UsageQuota[];
  namespaces: UsageNamespace[];
  users: UsageUser[];
  otherUsers: number;
  owners: UsageJob[];
  otherOwners: number;
  models: UsageModel[];
  cluster: UsageCluster[];
  losses: UsageLoss[];
  losers: UsageLoser[];
  estimated: number;
  uncertainMs: number;
  unseenMs: number | null;
  adjusted: number;
}
