// What answers of the server are: made by tools/page_types.py from the OpenAPI document.
// Change the types of the answers, and make it again.

/** Answer -> its value. */
export interface Answers {
  Overview: Overview;
  Queue: Page<QueueEntry>;
  Explanation: Explanation;
  Remedies: Remedies;
  Story: Story;
  Decisions: Page<TimelineEntry>;
  AuditReport: AuditReport;
  UsageReport: UsageReport;
  Quotas: Page<QuotaView>;
  Quota: QuotaInFull;
  Namespaces: Namespaces;
  Fragmentation: Fragmentation;
  Health: Page<HealthFinding>;
  Nodes: Page<NodeUsage>;
  Node: NodeInFull;
  Map: GpuMap;
  Devices: Devices;
  Reservations: Page<ReservationUsage>;
  Topology: TopologyCapacity;
  Room: ShapeRoom;
  WhatIf: WhatIfAnswer;
}

export interface AsOf {
  at: string;
  state: number | null;
  instance: string | null;
  source: "Live" | "Once" | "Stored" | "Reported";
  lagSeconds: number;
  leader: string | null;
  term: number | null;
  feed: null;
}

export interface AuditReport {
  from: string;
  to: string;
  namespace: string | null;
  quota: string | null;
  waits: WaitReport;
  phases: PhaseTime[];
  totalMs: number;
  retries: RetryReport;
  blockers: BlockerReport;
  starving: Starving[];
  preemption: PreemptionSummary;
  writes: WriteReport;
  coverage: CoverageReport;
}

export interface AwaitedEnd {
  name: string | null;
  end: string | null;
  level: "Declared" | "Stated" | "History" | "Default" | "None";
}

export interface BadValue {
  key: string;
  value: string;
  inForce: string;
  problem: string;
}

export interface Blocker {
  unit: string;
  namespace: string;
  trace: string;
  milliGpuMs: number;
  share: number;
}

export interface BlockerReport {
  totalMilliGpuMs: number;
  unattributedMilliGpuMs: number;
  units: Blocker[];
}

export interface CauseTime {
  cause: string;
  nodeMs: number;
}

export interface ClusterLine {
  model: string;
  used: number;
  reserved: number;
  idle: number;
  unusable: number;
  broken: number;
  down: number;
}

export interface CountOf {
  name: string;
  count: number;
}

export interface CoverageReport {
  records: number;
  gaps: number;
  missing: number | null;
  terms: TermBegin[];
  clockJumps: number;
}

export interface DeviceProblem {
  field: string;
  message: string;
}

export interface DeviceRecords {
  state: string;
  message: string;
}

export interface DeviceUse {
  type: string;
  minor: number;
  id?: string;
  health: boolean;
  free: Record<string, string>;
  pods: string[];
}

export interface Devices {
  devices: NodeDevices[];
}

export interface DomainCapacity {
  layer: string;
  domain: string;
  nodes: number;
  offer: number;
  members: number;
  free: Record<string, string>;
  allocatable: Record<string, string>;
}

export interface DomainRoom {
  topology: string;
  layer: string;
  domain: string;
  spare: number;
}

export interface DominantReason {
  code: string;
  class: "Misconfigured" | "Incomplete" | "Held" | "Writing" | "Ending" | "Quota" | "Room" | "Order" | "Elsewhere" | "Operators" | null;
  sentence: string;
}

export interface Envelope<T> {
  answer: string;
  version: string;
  asOf: AsOf;
  gaps: Gap[];
  value: T;
}

export interface Episode {
  time: string;
  what: string;
  why: string;
  by: string | null;
}

export interface Error {
  error: string;
  message: string;
  retryAfterSeconds: number | null;
}

export interface EvictedUnit {
  ref: string | null;
  pods: number;
  by: UnitRef;
}

export interface Explained {
  code: string;
  class: "Misconfigured" | "Incomplete" | "Held" | "Writing" | "Ending" | "Quota" | "Room" | "Order" | "Elsewhere" | "Operators" | null;
  message: string;
  fields: Record<string, unknown>;
}

export interface Explanation {
  kind: string;
  namespace: string;
  name: string;
  standing: "Waiting" | "Placeable" | "HeldUp" | "Bound" | "BeingEvicted" | "Ended" | "Degraded" | "NotOurs" | "NothingWaits";
  since: string | null;
  reason: Explained | null;
  waits: Explained | null;
  reported: Reported | null;
  place: PodPlace | null;
  gang: GangAnswer | null;
  network: TopologyExplanation | null;
  offers: ShapeOffers[];
  notAsked: number;
  advice: string[];
  add: string | null;
  warnings: string[];
  history: Episode[];
  notes: string[];
  dominant: DominantReason | null;
  nodes: NodeCauseCount[];
  owner: OwnerRef | null;
  remedies: Remedies | null;
}

export interface FailedWrites {
  status: number;
  message: string;
  count: number;
}

export interface FirstProblem {
  standing: "Waiting" | "Placeable" | "HeldUp" | "Bound" | "BeingEvicted" | "Ended" | "Degraded" | "NotOurs" | "NothingWaits" | null;
  reason: string | null;
  message: string | null;
  ref: UnitRef;
}

export interface Fragmentation {
  models: ModelFragmentation[];
}

export interface GangAnswer {
  key: string;
  group: GangCount[];
  members: MemberCounts;
  planId: string;
  nodes: string[];
  ignored: BadValue[];
  byOthers: number;
}

export interface GangCount {
  gang: string | null;
  present: number;
  minMember: number;
  waitingOnly: boolean;
  strangers: number;
  done: number;
}

export interface Gap {
  missing: string;
  because: "NoRight" | "NotServed" | "Stale" | "NoFeed" | "NotStored" | "TooExpensive" | "TooMany" | "Hidden" | "NoLeader";
  then: string;
}

export interface GpuMap {
  topologies: MapTopology[];
  letters: string;
  tenants: string[];
  quotas: string[];
  nodes: MapNode[];
}

export interface GpuSums {
  total: number;
  used: number;
  held: number;
  free: number;
  stranded: number;
  broken: number;
  down: number;
}

export interface Happening {
  at: string;
  what: string;
  text: string;
  by: string | null;
  ref: string;
  source: "Audit" | "History" | "Condition" | "Event";
}

export interface HealthFinding {
  subject: SickSubject;
  reason: string;
  severity: "Error" | "Warning";
  message: string;
  doThis: string;
  since: string | null;
  gpusOut: number;
  units: (string | null)[];
}

export interface InvalidQuota {
  quota: string;
  reason: string;
  message: string;
}

export interface LayerConstraint {
  layer: string;
  strategy: "MustGather" | "PreferGather";
  multiple: number;
}

export interface LayerGang {
  layer: string;
  pods: number;
}

export interface LayerGap {
  layer: string;
  domains: number;
}

export interface Loan {
  lender: string | null;
  borrower: string | null;
  resource: string;
  amount: string;
}

export interface LongWait {
  unit: string;
  namespace: string;
  trace: string;
  pods: number;
  quota: string;
  waitedMs: number;
  phase: string;
  code: string;
  isWaiting: boolean;
  overtaken: number;
}

export interface Loser {
  owner: string | null;
  lost: number;
  hours: string;
}

export interface LossLine {
  cause: string;
  basis: string;
  by: string | null;
  lost: number;
  hours: string;
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

export interface MapTopology {
  name: string;
  layers: string[];
}

export interface MemberCounts {
  total: number;
  present: number;
  held: number;
  planned: number;
  bound: number;
  running: number;
  succeeded: number;
  failed: number;
  terminating: number;
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
  shared: number;
  freeByNode: Record<string, number>;
  sizes: SizeLoss[];
}

export interface ModelLine {
  held: number;
  hours: string;
  cost: string | null;
  model: string | null;
}

export interface Named {
  name: string;
}

export interface NamespaceLine {
  held: number;
  hours: string;
  cost: string | null;
  namespace: string | null;
}

export interface Namespaces {
  items: Named[];
  isComplete: boolean;
}

export interface NodeCauseCount {
  cause: string;
  nodes: number;
  examples: (string | null)[];
}

export interface NodeDevices {
  node: string;
  readiness: string;
  problems: DeviceProblem[];
  foreignGPUs: number;
  records: DeviceRecords;
  consumption: string;
  allocations: unknown[];
  summary: Record<string, unknown>;
  devices: DeviceUse[];
  fragmentation: Record<string, unknown>;
}

export interface NodeInFull {
  node: string;
  state: string;
  taints: string[];
  allocatable: Record<string, string>;
  used: Record<string, string>;
  free: Record<string, string>;
  podCount: number;
  tenants: string[];
  pods: PodUsage[];
}

export interface NodeLeftOut {
  node: string;
  missingLayer: string;
}

export interface NodeOffer {
  node: string | null;
  pods: number;
  refusal: string | null;
  detail: string | null;
  short: Shortage[];
}

export interface NodeShare {
  node: string;
  pods: number;
}

export interface NodeUsage {
  node: string;
  state: string;
  taints: string[];
  allocatable: Record<string, string>;
  used: Record<string, string>;
  free: Record<string, string>;
  podCount: number;
  tenants: string[];
}

export interface NodesToAdd {
  like: string;
  count: number;
}

export interface ObservedTopology {
  layer: string;
  domain: string;
  domainsPerLayer: Record<string, number>;
  optimal: boolean;
  gap: LayerGap | null;
}

export interface Overview {
  gpus: GpuSums;
  waiting: Record<string, number>;
  waitingPods: number;
  longest: QueueEntry[];
  over: (string | null)[];
  sick: number;
}

export interface OwnerLine {
  held: number;
  hours: string;
  cost: string | null;
  owner: string | null;
}

export interface OwnerRef {
  kind: string;
  namespace: string;
  name: string;
  uid: string;
}

export interface Page<T> {
  items: T[];
  total: number;
  remaining: number;
  continue: string;
}

export interface PhaseSpan {
  phase: "Incomplete" | "Misconfigured" | "Held" | "Quota" | "Room" | "Order" | "Ending" | "Deciding" | "Writing" | "Starting" | "Running";
  ms: number;
}

export interface PhaseTime {
  phase: string;
  ms: number;
  share: number;
}

export interface PodPlace {
  node: string;
  isBound: boolean;
  planId: string;
  group: string;
  memberCount: number;
}

export interface PodUsage {
  pod: string | null;
  podGroup: string | null;
  quota: string | null;
  gpus: number;
  requests: Record<string, string>;
  phase: string;
  isTerminating: boolean;
}

export interface PreemptionSummary {
  plans: number;
  invalidated: number;
  victims: number;
  outcomes: CountOf[];
  repeated: RepeatedVictim[];
  lostMilliGpuMs: number;
  victimsTook: Spread;
  boundAfter: Spread;
}

export interface PromiseMove {
  from: string | null;
  to: string | null;
  cause: "HigherPriority" | "Guarantee" | "Load" | "Age" | "Repair" | "Node" | "LateEnd" | "Estimate" | "QuotaChanged" | "Preempted" | "HoldExpired" | "Other";
  by: string | null;
}

export interface QueueEntry {
  position: number | null;
  kind: string;
  names: (string | null)[];
  pods: number;
  required: number;
  reason: string;
  class: "Misconfigured" | "Incomplete" | "Held" | "Writing" | "Ending" | "Quota" | "Room" | "Order" | "Elsewhere" | "Operators" | null;
  message: string;
  since: string;
  quotas: (string | null)[];
  gpus: number;
  gpusAhead: number;
  priority: number;
  isRepair: boolean;
  turn: QueueStanding | null;
}

export interface QueueStanding {
  queue: string | null;
  position: number | null;
  waiting: number;
  ahead: number;
  gpusAhead: number;
  state: string;
  certainty: "Promised" | "Estimated" | "Guess" | "Unknown";
  headSince: string | null;
  expectedStart: string | null;
  startNoLaterThan: string | null;
  basis: Record<string, number>;
  waitsFor: AwaitedEnd[];
  reservation: StartReservation | null;
  lastMove: PromiseMove | null;
}

export interface QuotaInFull {
  name: string;
  namespace: string;
  parent: string | null;
  tree: string;
  isParent: boolean;
  min: Record<string, string>;
  max: Record<string, string>;
  sharedWeight: Record<string, string>;
  entitled: Record<string, string>;
  scaledMin: Record<string, string>;
  used: Record<string, string>;
  request: Record<string, string>;
  demand: Record<string, string>;
  submitted: Record<string, string>;
  keptForReplacements: number;
  over: Record<string, string>;
  problem: InvalidQuota | null;
  keptFor: InvalidQuota | null;
  waiting: Record<string, number>;
  users: QuotaUser[];
  waits: WaitingUnit[];
  terms: Record<string, ShareTerms>;
  loans: Loan[];
}

export interface QuotaLine {
  held: number;
  hours: string;
  cost: string | null;
  quota: string | null;
  depth: number;
  used: number | null;
  guaranteed: number | null;
  withinMin: number | null;
  borrowed: number | null;
  owed: number | null;
  idleMin: number | null;
  lent: number | null;
}

export interface QuotaUser {
  kind: string;
  name: string | null;
  quota: string | null;
  used: Record<string, string>;
  pods: number;
  running: number;
  state: string;
  since: string;
}

export interface QuotaView {
  name: string;
  namespace: string;
  parent: string | null;
  tree: string;
  isParent: boolean;
  min: Record<string, string>;
  max: Record<string, string>;
  sharedWeight: Record<string, string>;
  entitled: Record<string, string>;
  scaledMin: Record<string, string>;
  used: Record<string, string>;
  request: Record<string, string>;
  demand: Record<string, string>;
  submitted: Record<string, string>;
  keptForReplacements: number;
  over: Record<string, string>;
  problem: InvalidQuota | null;
  keptFor: InvalidQuota | null;
  waiting: Record<string, number>;
}

export interface Remedies {
  items: Remedy[];
}

export interface Remedy {
  id: string;
  kind: "FixName" | "AddMembers" | "LowerMinMember" | "Tolerate" | "AskLess" | "RaiseMax" | "RaiseMin" | "AddNodes" | "Uncordon" | "WaitFor" | "Relax" | "Preempt" | "Defragment" | "RemoveHold" | "UseOtherQuota";
  change: Record<string, unknown>;
  by: "Owner" | "QuotaAdmin" | "ClusterAdmin" | "Time";
  verified: "YesInOrder" | "Yes" | "No" | "NotTried";
  then: string;
  affects: (string | null)[];
}

export interface RepeatedVictim {
  unit: string;
  namespace: string;
  times: number;
}

export interface Reported {
  condition: string;
  status: string;
  reason: string;
  message: string;
  since: string;
}

export interface ReservationUsage {
  name: string;
  phase: string;
  node: string | null;
  reserved: Record<string, string>;
  used: Record<string, string>;
  by: (string | null)[];
  secondsLeft: number | null;
}

export interface RetryReport {
  attempts: number;
  repeats: number;
  placed: number;
  plans: number;
  planMicros: number;
  causes: CauseTime[];
}

export interface RoomRefusal {
  code: string;
  class: "Misconfigured" | "Incomplete" | "Held" | "Writing" | "Ending" | "Quota" | "Room" | "Order" | "Elsewhere" | "Operators" | null;
  message: string;
}

export interface ShapeOffers {
  pods: number;
  requests: Record<string, string>;
  fit: number;
  nodes: NodeOffer[];
}

export interface ShapeRoom {
  shape: string;
  fits: boolean;
  fit: number;
  inQuota: number | null;
  place: NodeShare[];
  reason: RoomRefusal | null;
  largestGang: LayerGang[];
  domains: DomainRoom[];
  afterNodes: NodesToAdd[];
  nearest: NodeOffer[];
}

export interface ShareChange {
  quota: string | null;
  resource: string;
  before: string;
  after: string;
}

export interface ShareTerms {
  parentShare: string;
  parentOwnPods: string;
  demand: string;
  wants: string;
  min: string;
  scaledMin: string;
  guaranteed: string;
  startsWith: string;
  leftOver: string;
  borrows: string;
  entitled: string;
  lends: boolean;
  weight: number;
  weights: number;
}

export interface Shortage {
  resource: string;
  asked: string;
  free: string;
}

export interface SickSubject {
  kind: string;
  name: string;
  namespace: string;
  device: string;
}

export interface SizeLoss {
  size: number;
  placeable: number;
  ideal: number;
  lost: number;
}

export interface Spread {
  count: number;
  p50Ms: number;
  p90Ms: number;
  maxMs: number;
}

export interface StartReservation {
  kind: string;
  start: string | null;
  since: string | null;
  idleHeldSeconds: number;
  nodes: Record<string, number>;
}

export interface Starving {
  wait: LongWait;
  medianMs: number;
  isOvertaken: boolean;
  isSlow: boolean;
}

export interface Story {
  kind: string | null;
  namespace: string;
  name: string;
  traces: string[];
  sources: ("Audit" | "History" | "Condition" | "Event")[];
  created: string | null;
  until: string | null;
  phases: PhaseSpan[];
  totalMs: number;
  approximate: boolean;
  items: Happening[];
  now: string | null;
}

export interface TermBegin {
  at: string;
  holder: string;
}

export interface TimelineEntry {
  at: string;
  what: string;
  text: string;
  by: string | null;
  ref: string;
  source: "Audit" | "History" | "Condition" | "Event";
  key: string;
  kind: string;
  class: "Misconfigured" | "Incomplete" | "Held" | "Writing" | "Ending" | "Quota" | "Room" | "Order" | "Elsewhere" | "Operators" | null;
}

export interface TopologyCapacity {
  topology: string;
  readiness: string;
  layers: string[];
  nodes: number;
  domains: DomainCapacity[];
  leftOut: NodeLeftOut[];
}

export interface TopologyExplanation {
  topology: string;
  wish: LayerConstraint[];
  unknownLayers: string[];
  where: ObservedTopology | null;
  domains: DomainCapacity[];
}

export interface UnitChange {
  ref: UnitRef;
  before: UnitOutcome;
  after: UnitOutcome;
}

export interface UnitOutcome {
  standing: "Waiting" | "Placeable" | "HeldUp" | "Bound" | "BeingEvicted" | "Ended" | "Degraded" | "NotOurs" | "NothingWaits" | null;
  reason: string | null;
  message: string | null;
}

export interface UnitRef {
  kind: string;
  namespace: string | null;
  name: string | null;
  uid: string | null;
}

export interface UsageReport {
  from: string;
  to: string;
  quota: string | null;
  unit: string;
  held: number;
  hours: string;
  cost: string | null;
  quotas: QuotaLine[];
  namespaces: NamespaceLine[];
  users: UserLine[];
  otherUsers: number;
  owners: OwnerLine[];
  otherOwners: number;
  models: ModelLine[];
  cluster: ClusterLine[];
  losses: LossLine[];
  losers: Loser[];
  estimated: number;
  uncertainMs: number;
  unseenMs: number | null;
  adjusted: number;
}

export interface UserLine {
  held: number;
  hours: string;
  cost: string | null;
  user: string | null;
}

export interface WaitReport {
  units: number;
  waiting: number;
  byPhase: WaitsOf[];
  byQuota: WaitsOf[];
  bySize: WaitsOf[];
  byBand: WaitsOf[];
  longest: LongWait[];
}

export interface WaitingUnit {
  position: number | null;
  kind: string;
  name: string | null;
  quota: string | null;
  asks: Record<string, string>;
  pods: number;
  reason: string;
  since: string;
}

export interface WaitsOf {
  name: string;
  waits: Spread;
}

export interface WhatIfAnswer {
  units: UnitChange[];
  shares: ShareChange[];
  evicted: EvictedUnit[];
  firstProblem: FirstProblem | null;
  order: UnitRef[];
}

export interface WriteReport {
  binds: number;
  refused: number;
  unknown: number;
  failures: FailedWrites[];
}
