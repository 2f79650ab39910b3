// Answers of the server that are followed while they are shown.
import { signal, type Signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import type { Answers, AsOf, Envelope, Page } from "./answers";
import { get, Refusal, standing, trade } from "./ask";
import { readAnswer } from "./plain";
import { follow as followTopics, listen, unlock as unlockAll, type News } from "./stream";

export { BASE, get, goToLogin, post, Refusal, standing } from "./ask";

/** Without a sign of the server for so long, what is shown is not live. */
const SILENT_MS = 20_000;
/** So often is asked for what a stream has no place for. */
const POLL_MS = 15_000;
const FIRST_ROWS = 100;
const MORE_ROWS = 500;

/** What the server said of itself last: why it cannot read the cluster. */
export const problem = signal("");
export const asOf = signal<AsOf | null>(null);
/** When the server was heard last, by the clock of the browser. */
export const heardAt = signal(Date.now());
/** How much the clock of the browser is ahead of that of the server, in milliseconds. */
export const clockAhead = signal(0);
/** Ticks each second. */
export const tick = signal(Date.now());

/** Trade a key for a cookie; return why that is refused, or nothing. */
export async function unlock(key: string): Promise<string> {
  const refusal = await trade(key);
  if (!refusal) unlockAll();
  return refusal;
}

/** Topic -> the value of its answer. */
type Values = { [Name in keyof Answers as Lowercase<Name>]: Answers[Name] };
export type Topic = keyof Values;
type RowOf<T> = unknown extends T ? unknown : T extends Page<infer R> ? R : never;

/** An answer that is followed; of a list, all rows of which the keys are known. */
export interface Followed<T> {
  head: Envelope<unknown> | null;
  value: T | null;
  /** Why there is no answer. */
  missing: string;
  /** Keys of the rows of a list that are loaded, in order. */
  order: string[];
  rows: Map<string, RowOf<T>>;
  total: number;
}

const NOTHING: Followed<unknown> = {
  head: null, value: null, missing: "", order: [], rows: new Map(), total: 0,
};

type KeyOf = (row: unknown) => string;

interface Subject {
  topic: string;
  path: string;
  most: number;
  keyOf: KeyOf | null;
  signal: Signal<Followed<unknown>>;
  readers: number;
  /** The first page of a list, by key. */
  followed: Map<string, unknown>;
  /** Rows that were loaded behind them, and in which round; they may be of an earlier one. */
  behind: Map<string, unknown>;
  behindOf: number;
  /** Counts the changes of what is followed. */
  round: number;
  /** What continues the list behind what is loaded. */
  more: string;
  isLoading: boolean;
  /** What is asked for is refused, so it cannot be followed. */
  isRefused: boolean;
}

const subjects = new Map<string, Subject>();
let pending = 0;
/** Topics that the stream has no place for. */
let over: string[] = [];

/** A question: its name as a topic, its path, and parameters. */
export interface Question<T extends Topic = Topic> {
  topic: T;
  path: string;
  inPath?: Record<string, string>;
  params?: Record<string, string>;
  /** Of lists: the key of a row, as the server has it. */
  keyOf?: (row: RowOf<Values[T]>) => string;
  /** How many rows are followed. */
  most?: number;
}

/** A question, whatever its rows are. */
type Asked = Omit<Question, "keyOf"> & { keyOf?: unknown };

function topicOf(question: Asked): string {
  const parts = Object.entries({ ...question.inPath, ...question.params }).filter(([, v]) => v);
  // A comma begins the next parameter of a topic; no name of Kubernetes has one.
  const words = parts.map(([name, value]) => `${name}=${value.replaceAll(",", "")}`);
  if (question.keyOf) words.push(`limit=${question.most ?? FIRST_ROWS}`);
  const inner = words.join(",");
  return inner ? `${question.topic}(${inner})` : question.topic;
}

/** Return the path of a question below the base path, with its parameters. */
export function pathOf(question: Pick<Asked, "path" | "params">): string {
  const given = Object.entries(question.params ?? {}).filter(([, value]) => value);
  const text = new URLSearchParams(given).toString();
  return `${question.path}${text ? `?${text}` : ""}`;
}

/** Follow an answer while the component is shown. A view follows all that it needs from the beginning: with one more
 * question the stream begins again, and with it all answers. */
export function useFollowed<T extends Topic>(question: Question<T>): Followed<Values[T]> {
  const topic = topicOf(question);
  const subject = useMemo(() => {
    const known = subjects.get(topic);
    if (known) return known;
    const made: Subject = {
      topic, path: pathOf(question), most: question.most ?? FIRST_ROWS, keyOf: (question.keyOf as KeyOf | undefined) ?? null,
      signal: signal<Followed<unknown>>(NOTHING), readers: 0,
      followed: new Map(), behind: new Map(), behindOf: 0, round: 0, more: "",
      isLoading: false, isRefused: false,
    };
    return made;
  }, [topic]);
  useEffect(() => {
    subjects.set(topic, subject);
    subject.readers += 1;
    if (subject.readers === 1) reopen();
    return () => {
      subject.readers -= 1;
      if (subject.readers === 0) {
        subjects.delete(topic);
        reopen();
      }
    };
  }, [topic]);
  return subject.signal.value as Followed<Values[T]>;
}

/** Load rows of a list that are not loaded, if any is. */
export async function loadMore(question: Asked): Promise<void> {
  const subject = subjects.get(topicOf(question));
  if (subject) await loadBehind(subject, subject.behind.size + 1);
}

/** Load rows behind those that are followed, until there are so many; what is shown meanwhile stays. */
async function loadBehind(subject: Subject, wanted: number): Promise<void> {
  if (!subject.keyOf || !subject.more || subject.isLoading) return;
  subject.isLoading = true;
  const { round } = subject;
  // Rows of an earlier round are loaded again, from the first one on.
  const rows = new Map(subject.behindOf === round ? subject.behind : []);
  let { more } = subject;
  try {
    while (more && rows.size < wanted && round === subject.round) {
      const joint = subject.path.includes("?") ? "&" : "?";
      const page = `limit=${MORE_ROWS}&continue=${encodeURIComponent(more)}`;
      const { value } = await get<Page<unknown>>(`${subject.path}${joint}${page}`);
      for (const row of value.items) rows.set(subject.keyOf(row), row);
      more = value.continue;
    }
    if (round === subject.round) {
      Object.assign(subject, { behind: rows, behindOf: round, more });
      show(subject, {});
    }
  } catch (error) {
    if (error instanceof Refusal && error.status === 410) reopen();
  } finally {
    subject.isLoading = false;
  }
  if (round !== subject.round && subject.behind.size) await loadBehind(subject, subject.behind.size);
}

/** Show the followed rows of a list, and behind them those that were loaded. */
function show(subject: Subject, changes: Partial<Followed<unknown>>): void {
  const behind = [...subject.behind].filter(([key]) => !subject.followed.has(key));
  const rows = new Map([...subject.followed, ...behind]);
  subject.signal.value = { ...subject.signal.peek(), ...changes, rows, order: [...rows.keys()] };
}

/** Take the followed rows of a list, as they are now. */
function follow(subject: Subject, rows: Map<string, unknown>, more: string, changes: Partial<Followed<unknown>>): void {
  Object.assign(subject, { followed: rows, more, round: subject.round + 1 });
  if (!more) subject.behind = new Map();
  show(subject, { ...changes, missing: "" });
  if (subject.behind.size) void loadBehind(subject, subject.behind.size);
}

function reopen(): void {
  window.clearTimeout(pending);
  pending = window.setTimeout(open, 0);
}

/** Follow what is shown. Browsers open few connections to one host: a tab that nobody sees leaves them to the others. */
function open(): void {
  const followed = [...subjects.values()].filter((subject) => !subject.isRefused);
  followTopics(document.hidden ? [] : followed.map((subject) => ({ topic: subject.topic, path: subject.path })));
}

function find(topic: string): Subject | undefined {
  return subjects.get(topic);
}

listen((news: News) => {
  switch (news.kind) {
    case "event": return takeEvent(news.event, news.data);
    case "opened":
      hear();
      problem.value = "";
      return undefined;
    case "problem":
      problem.value = news.message;
      return undefined;
    case "refused": return refuse(news.topic, news.message);
    case "over":
      over = news.topics;
      return poll();
    case "locked":
      standing.value = "locked";
      return undefined;
    case "unlocked":
      standing.value = "starting";
      return undefined;
  }
});

function refuse(topic: string, message: string): void {
  const subject = find(topic);
  if (!subject) return;
  subject.isRefused = true;
  subject.signal.value = { ...NOTHING, missing: message };
}

/** Ask for what the stream has no place for. */
function poll(): void {
  for (const topic of document.hidden ? [] : over) {
    const subject = find(topic);
    if (!subject) continue;
    const joint = subject.path.includes("?") ? "&" : "?";
    const path = subject.keyOf ? `${subject.path}${joint}limit=${subject.most}` : subject.path;
    get(path).then(
      (answer) => take("hello", { topic, ...answer }),
      (error: unknown) => { if (error instanceof Refusal && error.status === 400) refuse(topic, error.message); },
    );
  }
}

function hear(): void {
  heardAt.value = Date.now();
  standing.value = "live";
}

/** Answers that are read, and not taken yet: of a large one, either is work enough for one task. */
const unread: (() => void)[] = [];
const LARGE = 50_000;

function takeEvent(event: string, data: string): void {
  const told = readAnswer<unknown>(data);
  const work = () => {
    if (event !== "sign") return take(event as Kind, told as Told & Partial<Envelope<unknown>>);
    hear();
    sign(told as Sign);
  };
  if (!unread.length && data.length < LARGE) return work();
  unread.push(work);
  if (unread.length === 1) window.setTimeout(takeNext, 0);
}

function takeNext(): void {
  const work = unread.shift();
  if (unread.length) window.setTimeout(takeNext, 0);
  work?.();
}

type Kind = "hello" | "rows" | "value" | "patch" | "gap";

interface Sign {
  at: string;
  lagSeconds: number | null;
  problem: string;
}

function sign(told: Sign): void {
  const now = Date.parse(told.at);
  clockAhead.value = Date.now() - now;
  problem.value = told.problem;
  if (asOf.value && told.lagSeconds !== null) {
    const at = new Date(now - told.lagSeconds * 1000).toISOString();
    asOf.value = { ...asOf.value, at, lagSeconds: told.lagSeconds };
  }
}

interface Told {
  topic: string;
  message?: string;
  value?: unknown;
  fields?: Record<string, unknown>;
  items?: Record<string, Record<string, unknown>>;
  set?: unknown[];
  gone?: string[];
  order?: string[];
  total?: number;
  continue?: string;
}

function take(kind: Kind, told: Told & Partial<Envelope<unknown>>): void {
  hear();
  if (told.asOf) {
    asOf.value = told.asOf;
    clockAhead.value = Date.now() - Date.parse(told.asOf.at) - told.asOf.lagSeconds * 1000;
  }
  const subject = find(told.topic);
  if (!subject) return;
  const before = subject.signal.value;
  if (kind === "gap") {
    subject.signal.value = { ...before, missing: told.message ?? "there is no answer" };
    return;
  }
  if (kind === "hello") {
    const head = told as Envelope<unknown>;
    if (subject.keyOf) takePage(subject, head as Envelope<Page<unknown>>);
    else subject.signal.value = { ...NOTHING, head, value: head.value };
    return;
  }
  problem.value = ""; // the cluster was read again
  if (kind === "value") {
    subject.signal.value = { ...before, value: told.value, missing: "" };
    return;
  }
  if (kind === "patch") {
    subject.signal.value = { ...before, value: patch(before.value, told), missing: "" };
    return;
  }
  const rows = new Map(subject.followed);
  for (const key of told.gone ?? []) rows.delete(key);
  for (const row of told.set ?? []) rows.set(subject.keyOf?.(row) ?? "", row);
  const order = told.order ?? [...rows.keys()];
  const followed = new Map(order.map((key) => [key, rows.get(key)]));
  follow(subject, followed, told.continue ?? "", { total: told.total ?? order.length });
}

/** Return a value with what of it changed: some fields, and some items of lists. */
function patch(value: unknown, { fields, items }: Told): unknown {
  const changed = { ...(value as Record<string, unknown>), ...fields };
  for (const [name, byNumber] of Object.entries(items ?? {})) {
    const list = [...(changed[name] as unknown[])];
    for (const [at, item] of Object.entries(byNumber)) list[Number(at)] = item;
    changed[name] = list;
  }
  return changed;
}

function takePage(subject: Subject, head: Envelope<Page<unknown>>): void {
  const page = head.value;
  const rows = new Map(page.items.map((row) => [subject.keyOf?.(row) ?? "", row]));
  follow(subject, rows, page.continue, { head, value: page, total: page.total });
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) {
    heardAt.value = Date.now();
    if (standing.value === "live" || standing.value === "silent") standing.value = "starting";
  }
  open();
});

window.setInterval(poll, POLL_MS);
window.setInterval(() => {
  tick.value = Date.now();
  if (standing.value === "live" && Date.now() - heardAt.value > SILENT_MS) standing.value = "silent";
}, 1000);
