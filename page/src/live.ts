// Answers of the server: asked for once, or followed while they are shown. One stream for all that
// is shown, since browsers open few connections to one host.
import { signal, type Signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import type { AsOf, Envelope, Page } from "./answers";
import { readAnswer } from "./plain";

export const BASE = "/apis/answers.operators.koordinator.sh/v1alpha1";
/** Without a sign of the server for so long, what is shown is not live. */
const SILENT_MS = 20_000;
const FIRST_ROWS = 100;
const MORE_ROWS = 1000;

export type Standing = "starting" | "live" | "silent" | "locked" | "refused";

export const standing = signal<Standing>("starting");
/** What the server said of itself last: why it cannot read the cluster. */
export const problem = signal("");
export const asOf = signal<AsOf | null>(null);
/** When the server was heard last, by the clock of the browser. */
export const heardAt = signal(Date.now());
/** How much the clock of the browser is ahead of that of the server, in milliseconds. */
export const clockAhead = signal(0);
/** Ticks each second. */
export const tick = signal(Date.now());

export class Refusal extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

async function ask<T>(path: string, init?: RequestInit): Promise<T> {
  const response = await fetch(`${BASE}/${path}`, { ...init, credentials: "same-origin" });
  const body: unknown = await response.text().then((text) => readAnswer<unknown>(text)).catch(() => ({}));
  if (!response.ok) {
    const { error, message } = body as { error?: string; message?: string };
    if (response.status === 401) standing.value = "locked";
    throw new Refusal(response.status, error ?? "Error", message ?? response.statusText);
  }
  return body as T;
}

export function get<T>(path: string): Promise<Envelope<T>> {
  return ask<Envelope<T>>(path);
}

export function post<T>(path: string, body: string): Promise<Envelope<T>> {
  return ask<Envelope<T>>(path, { method: "POST", body });
}

/** Go where people say who they are, if the server has such a form; false if it has none. */
export async function goToLogin(): Promise<boolean> {
  const response = await fetch("/login", { method: "HEAD", credentials: "same-origin" }).catch(() => null);
  if (response?.ok) window.location.assign("/login");
  return response?.ok ?? false;
}

/** Trade a key for a cookie; false if it is not the right one. */
export async function unlock(key: string): Promise<boolean> {
  const request: RequestInit = { method: "POST", body: JSON.stringify({ key }), credentials: "same-origin" };
  const response = await fetch("/session", request).catch(() => null);
  if (response?.ok) {
    standing.value = "starting";
    reopen();
  }
  return response?.ok ?? false;
}

/** An answer that is followed; of a list, all rows of which the keys are known. */
export interface Followed<T> {
  head: Envelope<unknown> | null;
  value: T | null;
  /** Why there is no answer. */
  missing: string;
  /** Keys of the rows of a list that are loaded, in order. */
  order: string[];
  rows: Map<string, unknown>;
  total: number;
}

const NOTHING: Followed<never> = {
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
let source: EventSource | null = null;
let pending = 0;

/** A question: its name as a topic, its path, and parameters. */
export interface Question<R = never> {
  topic: string;
  path: string;
  inPath?: Record<string, string>;
  params?: Record<string, string>;
  /** Of lists: the key of a row, as the server has it. */
  keyOf?: (row: R) => string;
  /** How many rows are followed. */
  most?: number;
}

function topicOf(question: Question<never>): string {
  const parts = Object.entries({ ...question.inPath, ...question.params }).filter(([, v]) => v);
  // A comma begins the next parameter of a topic; no name of Kubernetes has one.
  const inner = parts.map(([name, value]) => `${name}=${value.replaceAll(",", "")}`).join(",");
  return inner ? `${question.topic}(${inner})` : question.topic;
}

/** Return the path of a question below the base path, with its parameters. */
export function pathOf(question: Question<never>): string {
  const given = Object.entries(question.params ?? {}).filter(([, value]) => value);
  const text = new URLSearchParams(given).toString();
  return `${question.path}${text ? `?${text}` : ""}`;
}

/** Follow an answer while the component is shown. A view follows all that it needs from the beginning: with one more
 * question the stream begins again, and with it all answers. */
export function useFollowed<T, R = never>(question: Question<R>): Followed<T> {
  const plain = question as unknown as Question<never>;
  const topic = topicOf(plain);
  const subject = useMemo(() => {
    const known = subjects.get(topic);
    if (known) return known;
    const made: Subject = {
      topic, path: pathOf(plain), most: question.most ?? FIRST_ROWS, keyOf: (question.keyOf as KeyOf | undefined) ?? null,
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
  return subject.signal.value as Followed<T>;
}

/** Load rows of a list that are not loaded, if any is. */
export async function loadMore(question: Question<never>): Promise<void> {
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

function open(): void {
  source?.close();
  source = null;
  const followed = [...subjects.values()].filter((subject) => !subject.isRefused);
  if (!followed.length || standing.value === "locked" || document.hidden) return;
  const query = followed.map((subject) => {
    const topic = subject.keyOf ? withLimit(subject) : subject.topic;
    return `topic=${encodeURIComponent(topic)}`;
  });
  const opened = new EventSource(`${BASE}/stream?${query.join("&")}`);
  source = opened;
  opened.onopen = () => {
    hear();
    problem.value = "";
  };
  opened.onerror = () => {
    if (opened.readyState === EventSource.CLOSED) void findOut();
  };
  for (const kind of ["hello", "rows", "value", "gap"] as const) {
    opened.addEventListener(kind, (event) => take(kind, readAnswer((event as MessageEvent<string>).data)));
  }
  opened.addEventListener("sign", (event) => {
    hear();
    sign(readAnswer((event as MessageEvent<string>).data));
  });
  opened.addEventListener("bye", () => window.setTimeout(reopen, 1000));
}

function withLimit({ topic, most }: Subject): string {
  const limit = `limit=${most}`;
  return topic.endsWith(")") ? `${topic.slice(0, -1)},${limit})` : `${topic}(${limit})`;
}

/** The stream was refused, and a browser does not say why: ask for each answer, which does. */
async function findOut(): Promise<void> {
  for (const subject of subjects.values()) {
    try {
      await get(subject.path);
    } catch (error) {
      if (error instanceof Refusal && error.status === 401) return;
      if (error instanceof Refusal && error.status === 400) {
        subject.isRefused = true;
        subject.signal.value = { ...NOTHING, missing: error.message };
        continue;
      }
      if (error instanceof Refusal && error.status === 404) continue;
      problem.value = error instanceof Refusal ? error.message : "the server does not answer";
      break;
    }
  }
  window.clearTimeout(pending);
  pending = window.setTimeout(open, problem.value ? 3000 : 1000);
}

function hear(): void {
  heardAt.value = Date.now();
  standing.value = "live";
}

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
  set?: unknown[];
  gone?: string[];
  order?: string[];
  total?: number;
  continue?: string;
}

function take(kind: "hello" | "rows" | "value" | "gap", told: Told & Partial<Envelope<unknown>>): void {
  hear();
  if (told.asOf) {
    asOf.value = told.asOf;
    clockAhead.value = Date.now() - Date.parse(told.asOf.at) - told.asOf.lagSeconds * 1000;
  }
  const subject = [...subjects.values()].find(
    (each) => told.topic === (each.keyOf ? withLimit(each) : each.topic),
  );
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
  const rows = new Map(subject.followed);
  for (const key of told.gone ?? []) rows.delete(key);
  for (const row of told.set ?? []) rows.set(subject.keyOf?.(row) ?? "", row);
  const order = told.order ?? [...rows.keys()];
  const followed = new Map(order.map((key) => [key, rows.get(key)]));
  follow(subject, followed, told.continue ?? "", { total: told.total ?? order.length });
}

function takePage(subject: Subject, head: Envelope<Page<unknown>>): void {
  const page = head.value;
  const rows = new Map(page.items.map((row) => [subject.keyOf?.(row) ?? "", row]));
  follow(subject, rows, page.continue, { head, value: page, total: page.total });
}

// Browsers open few connections to one host: a tab that nobody sees leaves them to the others.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    source?.close();
    source = null;
  } else {
    heardAt.value = Date.now();
    if (standing.value === "live" || standing.value === "silent") standing.value = "starting";
    reopen();
  }
});

window.setInterval(() => {
  tick.value = Date.now();
  if (standing.value === "live" && Date.now() - heardAt.value > SILENT_MS) standing.value = "silent";
}, 1000);
