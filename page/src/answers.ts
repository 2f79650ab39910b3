// What the answers of the server look like: only the fields that the page shows. A test compares
// these names with answers of the server, so none can be misspelt or out of date.

export type Amounts = Record<string, string>;

export interface AsOf {
  at: string;
  state: number | null;
  instance: string | null;
  source: string;
  lagSeconds: number;
  leader: string | null;
  term: number | null;
}

export interface Gap {
  missing: string;
  because: string;
  then: string;
}

export interface Envelope<T> {
  answer: string;
  asOf: AsOf;
  gaps: Gap[];
  value: T;
}

export interface Page<T> {
  items: T[];
  total: number;
  remaining: number;
  continue: string;
}

export interface Turn {
  queue: string;
  position: number | null;
  waiting: number;
  ahead: number;
  gpusAhead: number;
  state: string;
  certainty: string;
  expectedStart: string | null;
  startNoLaterThan: string | null;
  waitsFor: { name: string | null; end: string | null; level: string }[];
  reservation: { nodes: Record<string, unknown> } | null;
  lastMove: { from: string | null; to: string | null; cause: string; by: string | null } | null;
}

export interface QueueEntry {
  position: number | null;
  kind: string;
  names: (string | null)[];
  pods: number;
  required: number;
  reason: string;
  class: string;
  message: string;
  since: string;
  quotas: (string | null)[];
  gpus: number;
  gpusAhead: number;
  priority: number;
  turn: Turn | null;
}

export interface Gpus {
  total: number;
  used: number;
  held: number;
  free: number;
  stranded: number;
  broken: number;
  down: number;
}

export interface Overview {
  gpus: Gpus;
  waiting: Record<string, number>;
  waitingPods: number;
  longest: QueueEntry[];
  over: string[];
  sick: number;
}

export interface Cause {
  cause: string;
  nodes: number;
  examples: (string | null)[];
}

export interface NodeOffer {
  node: string;
  pods: number;
  refusal: string | null;
  detail: string | null;
  short: { resource: string; asked: string; free: string }[];
}

export interface Remedy {
  id: string;
  kind: string;
  by: string;
  change: Record<string, unknown>;
  /** `Yes`, `YesInOrder`, `No` or `NotTried`. */
  verified: string;
  then: string;
  affects: (string | null)[];
}

export interface Explanation {
  kind: string;
  namespace: string;
  name: string;
  standing: string;
  since: string | null;
  reason: { code: string; class: string; message: string } | null;
  reported: { reason: string; message: string; since: string } | null;
  place: { node: string } | null;
  gang: { members: Record<string, number>; nodes: string[]; group: GangCount[] } | null;
  offers: { pods: number; requests: Amounts; fit: number; nodes: NodeOffer[] }[] | null;
  advice: string[];
  warnings: string[];
  history: Episode[];
  notes: string[];
  dominant: { code: string; class: string; sentence: string } | null;
  nodes: Cause[];
  owner: { kind: string; namespace: string; name: string } | null;
  remedies: { items: Remedy[] } | null;
}

export interface GangCount {
  gang: string;
  present: number;
  minMember: number;
}

export interface Episode {
  time: string;
  what: string;
  why: string;
  by: string | null;
}

export interface Quota {
  name: string;
  namespace: string;
  parent: string;
  tree: string;
  isParent: boolean;
  min: Amounts;
  max: Amounts;
  entitled: Amounts;
  scaledMin: Amounts;
  used: Amounts;
  request: Amounts;
  demand: Amounts;
  over: Amounts;
  problem: { message: string } | null;
  waiting: Record<string, number>;
}

export interface QuotaInFull extends Quota {
  users: QuotaUser[];
  waits: QuotaWait[];
  loans: Loan[];
}

export interface QuotaUser {
  kind: string;
  name: string | null;
  quota: string;
  used: Amounts;
  pods: number;
  running: number;
  state: string;
  since: string;
}

export interface QuotaWait {
  position: number | null;
  kind: string;
  name: string | null;
  quota: string;
  asks: Amounts;
  pods: number;
  reason: string;
  since: string;
}

export interface Loan {
  lender: string;
  borrower: string;
  resource: string;
  amount: string;
}

export interface NodeRow {
  node: string;
  state: string;
  taints: string[];
  allocatable: Amounts;
  used: Amounts;
  free: Amounts;
  podCount: number;
  tenants: (string | null)[];
}

export interface Reservation {
  name: string;
  phase: string;
  node: string;
  reserved: Amounts;
  used: Amounts;
  by: (string | null)[];
  secondsLeft: number | null;
}

export interface Finding {
  subject: { kind: string; namespace: string | null; name: string; device: string | null };
  reason: string;
  severity: string;
  message: string;
  doThis: string;
  since: string | null;
  gpusOut: number;
  units: (string | null)[];
}

export interface NodeInFull extends NodeRow {
  pods: PodOnNode[];
}

export interface PodOnNode {
  pod: string | null;
  podGroup: string | null;
  quota: string | null;
  gpus: number;
  requests: Amounts;
  phase: string;
  isTerminating: boolean;
}

export interface Devices {
  devices: DeviceReport[];
}

export interface DeviceReport {
  node: string;
  problems: { field: string; message: string }[];
  records: { state: string; message: string };
  devices: Device[];
}

export interface Device {
  type: string;
  minor: number;
  health: boolean;
  free: Amounts;
  pods: string[];
}

export interface GpuMap {
  topologies: { name: string; layers: string[] }[];
  letters: string;
  tenants: string[];
  quotas: string[];
  nodes: MapNode[];
}

export interface MapNode {
  node: string;
  state: string;
  model: string;
  gpus: number;
  free: number;
  domains: string[];
  tenants: string;
  quotas: string;
}

export interface Fragmentation {
  models: ModelFragmentation[];
}

export interface ModelFragmentation {
  model: string;
  nodes: number;
  total: number;
  used: number;
  held: number;
  free: number;
  stranded: Record<string, number>;
  broken: number;
  down: number;
  sizes: { size: number; placeable: number; ideal: number; lost: number }[];
}

export interface Room {
  shape: string;
  fits: boolean;
  fit: number;
  inQuota: number | null;
  place: { node: string; pods: number }[];
  reason: { code: string; class: string; message: string } | null;
  largestGang: { layer: string; pods: number }[];
  domains: { topology: string; layer: string; domain: string; spare: number }[];
  afterNodes: { like: string; count: number }[];
  nearest: NodeOffer[];
}

export interface Remedies {
  items: Remedy[];
}

export interface Story {
  phases: { phase: string; ms: number }[];
  totalMs: number;
  approximate: boolean;
  items: Happening[];
  now: string | null;
}

export interface Happening {
  at: string;
  what: string;
  text: string;
  by: string | null;
  source: string;
}

export interface Entry extends Happening {
  key: string;
  ref: string;
  kind: string;
  class: string | null;
}

export interface UnitOutcome {
  standing: string | null;
  reason: string | null;
  message: string | null;
}

export interface UnitRef {
  kind: string;
  namespace: string;
  name: string;
}

export interface WhatIf {
  units: { ref: UnitRef; before: UnitOutcome; after: UnitOutcome }[];
  shares: { quota: string; resource: string; before: string; after: string }[];
  evicted: { ref: string; pods: number; by: UnitRef }[];
  order: UnitRef[];
}
