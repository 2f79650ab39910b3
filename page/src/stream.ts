// One stream for all tabs and windows of a browser that are seen: browsers open few connections to one host, and a
// server lets one asker have few streams. One of the tabs has it and tells the others; which one, a lock of the browser
// says. If it is closed or nobody sees it any more, the next one has it. Knows no answer.
import { BASE, get, Refusal, standing } from "./ask";

/** What a tab follows: the topic, and the path where the same is asked for. */
export interface Wanted {
  topic: string;
  path: string;
}

/** What the stream tells every tab. */
export type News =
  | { kind: "event"; event: string; data: string }
  | { kind: "opened" }
  | { kind: "problem"; message: string }
  | { kind: "refused"; topic: string; message: string }
  | { kind: "over"; topics: string[] }
  | { kind: "locked" }
  | { kind: "unlocked" };

/** What tabs say to each other besides. */
type Word = (News & { to?: string }) | { kind: "want"; tab: string; wanted: Wanted[] } | { kind: "who" };

const EVENTS = ["hello", "rows", "value", "patch", "gap", "sign"];
/** Of one stream, as the server has it. */
const MOST_TOPICS = 8;
/** So long the others have to say what they follow, when a tab takes over. */
const TAKEOVER_MS = 50;
/** So many events of a topic are kept, for tabs that follow it later. */
const MOST_KEPT = 60;
const RETRY_MS = 1000;
const AWAY_MS = 3000;
const NAME = "koord-stream";

const tab = `${Date.now()}-${Math.random()}`;
/** Without either each tab has a stream of its own. */
const bus = "BroadcastChannel" in window && "locks" in navigator ? new BroadcastChannel(NAME) : null;
const others = new Map<string, Wanted[]>();
const refused = new Set<string>();
/** What the stream told of each topic since its answer as a whole. */
const told = new Map<string, { event: string; data: string }[]>();
let mine: Wanted[] = [];
let over: string[] = [];
let hear: (news: News) => void = () => undefined;
let source: EventSource | null = null;
let pending = 0;
let isOwner = bus === null;
/** Gives the lock back, or the claim to it. */
let letGo: (() => void) | null = null;

export function listen(take: (news: News) => void): void {
  hear = take;
}

/** Follow what this tab shows, from its beginning; nothing, if nobody sees it. */
export function follow(wanted: Wanted[]): void {
  mine = wanted;
  say({ kind: "want", tab, wanted });
  if (bus && wanted.length) claim();
  if (bus && !wanted.length) letGo?.();
  if (isOwner) soon(0);
}

/** Say to all tabs that the server lets the reader in again. */
export function unlock(): void {
  tell({ kind: "unlocked" });
  if (isOwner) soon(0);
}

function say(word: Word): void {
  bus?.postMessage(word);
}

function tell(news: News): void {
  hear(news);
  if (others.size || !isOwner) say(news);
}

if (bus) {
  bus.onmessage = ({ data: word }: MessageEvent<Word>) => {
    if (word.kind === "who") say({ kind: "want", tab, wanted: mine });
    else if (word.kind === "want") note(word.tab, word.wanted);
    else if (!word.to || word.to === tab) {
      if (mine.length) hear(word);
      if (isOwner && word.kind === "unlocked") soon(0);
    }
  };
}

/** Note what another tab follows: it is told what is known of that, or the stream begins again with it. */
function note(other: string, wanted: Wanted[]): void {
  if (wanted.length) others.set(other, wanted);
  else others.delete(other);
  if (!isOwner || (!wanted.length && !over.length)) return;
  const kept = wanted.map(({ topic }) => told.get(topic));
  if (!wanted.length || !kept.every((events) => events)) return soon(0);
  for (const each of kept.flat()) if (each) say({ kind: "event", ...each, to: other });
}

/** Keep what is told of a topic; the server names it first. */
function keep(event: string, data: string): void {
  const topic = /^\{"topic": ("(?:[^"\\]|\\.)*")/.exec(data)?.[1];
  if (!topic) return;
  const name = JSON.parse(topic) as string;
  if (event === "hello") told.set(name, []);
  const events = told.get(name);
  events?.push({ event, data });
  if (events && events.length > MOST_KEPT) told.delete(name);
}

function claim(): void {
  if (letGo) return;
  const waits = new AbortController();
  letGo = () => waits.abort();
  const own = async () => {
    isOwner = true;
    soon(others.size ? TAKEOVER_MS : 0);
    others.clear();
    say({ kind: "who" });
    await new Promise<void>((resolve) => { letGo = resolve; });
  };
  const end = () => {
    isOwner = false;
    letGo = null;
    window.clearTimeout(pending);
    close();
    told.clear();
    if (mine.length) claim();
  };
  navigator.locks.request(NAME, { signal: waits.signal }, own).then(end, end);
}

function close(): void {
  source?.close();
  source = null;
}

function soon(milliseconds: number): void {
  window.clearTimeout(pending);
  pending = window.setTimeout(open, milliseconds);
}

/** Return all that tabs follow, each once, what this one shows first. */
function gather(): Wanted[] {
  const all = [mine, ...others.values()].flat();
  const byTopic = new Map(all.map((each) => [each.topic, each]));
  for (const topic of refused) if (!byTopic.delete(topic)) refused.delete(topic);
  return [...byTopic.values()];
}

function open(): void {
  close();
  told.clear();
  const wanted = gather();
  if (!wanted.length || standing.value === "locked") return;
  const topics = wanted.slice(0, MOST_TOPICS).map(({ topic }) => topic);
  over = wanted.slice(MOST_TOPICS).map(({ topic }) => topic);
  tell({ kind: "over", topics: over });
  const opened = new EventSource(`${BASE}/stream?${topics.map((topic) => `topic=${encodeURIComponent(topic)}`).join("&")}`);
  source = opened;
  opened.onopen = () => tell({ kind: "opened" });
  opened.onerror = () => {
    if (opened.readyState === EventSource.CLOSED && source === opened) void findOut();
  };
  for (const event of EVENTS) {
    opened.addEventListener(event, (sent) => {
      const { data } = sent as MessageEvent<string>;
      keep(event, data);
      tell({ kind: "event", event, data });
    });
  }
  opened.addEventListener("bye", () => soon(RETRY_MS));
}

/** The stream was refused, and a browser does not say why: ask for each answer, which does. */
async function findOut(): Promise<void> {
  let message = "";
  for (const { topic, path } of gather()) {
    try {
      await get(path);
    } catch (error) {
      const status = error instanceof Refusal ? error.status : 0;
      if (status === 401) return tell({ kind: "locked" });
      if (status === 404) continue;
      if (status === 400) {
        refused.add(topic);
        tell({ kind: "refused", topic, message: (error as Refusal).message });
        continue;
      }
      message = error instanceof Refusal ? error.message : "the server does not answer";
      break;
    }
  }
  if (message) tell({ kind: "problem", message });
  if (isOwner) soon(message ? AWAY_MS : RETRY_MS);
}
