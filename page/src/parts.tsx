// Parts of views: numbers, times, bars, tables. They know no answer as a whole.
import { Component, type ComponentChildren, type TargetedEvent } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Gap } from "./answers";
import { clockAhead, problem, tick } from "./live";
import { go, to, toUnit } from "./route";

export function Link(props: { href: string; children: ComponentChildren; class?: string; title?: string }) {
  const follow = (event: MouseEvent) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    go(props.href);
  };
  return <a href={props.href} class={props.class} title={props.title} onClick={follow}>{props.children}</a>;
}

const UNITS: [number, string][] = [[86_400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

/** Tell a length of time by its two largest units. */
export function tellSeconds(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  const at = UNITS.findIndex(([size]) => whole >= size);
  if (at < 0) return "0 s";
  const [size, name] = UNITS[at]!;
  const next = UNITS[at + 1];
  const rest = next && whole < 86_400 * 10 ? Math.floor((whole % size) / next[0]) : 0;
  return `${Math.floor(whole / size)} ${name}${next && rest ? ` ${rest} ${next[1]}` : ""}`;
}

/** How long ago a time is, which ticks. */
export function Since(props: { at: string | null }) {
  if (!props.at) return <span class="none">not known</span>;
  return <time dateTime={props.at}><Age at={props.at} /></time>;
}

/** Tell times in full that the reader points at: made for all that are shown they are slow. */
export function tellTimes(): void {
  document.addEventListener("mouseover", ({ target }) => {
    const time = target instanceof Element ? target.closest("time") : null;
    if (time) time.title = tellFully(time.dateTime); // its element may have shown another one before
  });
}

/** What ticks is a text alone: everything around it stays. */
function Age({ at }: { at: string }) {
  const seconds = (tick.value - clockAhead.value - Date.parse(at)) / 1000;
  // From a minute on in minutes: dozens of texts that change each second are work, and nobody reads them.
  return <>{tellSeconds(seconds < 60 ? seconds : 60 * Math.floor(seconds / 60))}</>;
}

/** In how long a time is. */
export function Until(props: { at: string; before?: string }) {
  return <time dateTime={props.at}>{props.before}<Left at={props.at} /></time>;
}

function Left({ at }: { at: string }) {
  const seconds = (Date.parse(at) - tick.value + clockAhead.value) / 1000;
  return <>{seconds <= 0 ? "now" : `in ${tellSeconds(Math.ceil(seconds / 60) * 60)}`}</>;
}

/** A time in the zone of the reader, and as the server has it. */
function tellFully(at: string): string {
  const moment = Date.parse(at);
  if (!Number.isFinite(moment)) return "";
  return `${new Date(moment).toLocaleString(undefined, { dateStyle: "short", timeStyle: "medium" })} · ${at}`;
}

/** A time of day, with the date if it was another day; in the zone of the reader. */
export function tellTime(at: string): string {
  const moment = new Date(at);
  const time = moment.toLocaleTimeString();
  return moment.toDateString() === new Date(tick.peek()).toDateString() ? time : `${moment.toLocaleDateString()} ${time}`;
}

/** The zone of the reader, such as "Europe/Berlin, GMT+1": those who compare with a log have to know. */
export function tellZone(): string {
  const { timeZone } = Intl.DateTimeFormat().resolvedOptions();
  const parts = new Intl.DateTimeFormat("en", { timeZoneName: "shortOffset" }).formatToParts();
  const offset = parts.find((part) => part.type === "timeZoneName")?.value ?? "";
  return timeZone === "UTC" || !offset || offset === "GMT" ? timeZone : `${timeZone}, ${offset}`;
}

export const CLASSES = [
  "Misconfigured", "Incomplete", "Held", "Writing", "Ending", "Quota", "Room", "Order", "Elsewhere", "Operators",
];

const MEANS: Record<string, string> = {
  Misconfigured: "It cannot start until somebody edits something.",
  Incomplete: "Members are missing.",
  Held: "Somebody holds it on purpose.",
  Writing: "It is decided; what is written is on its way.",
  Ending: "Room is being made: others terminate.",
  Quota: "Its quota, or one above, refuses it.",
  Room: "There is not enough room now.",
  Order: "There is room, and others come first or it starts now.",
  Elsewhere: "It is not for these operators to decide.",
  Operators: "A limit or fault of the operators.",
};

/** The class of a reason; one that only others know has none. */
export function ClassBadge(props: { name: string | null }) {
  if (!props.name) return <span class="none">–</span>;
  return <span class={`badge class-${props.name.toLowerCase()}`} title={MEANS[props.name]}>{props.name}</span>;
}

/** The names of a unit; those of others are not shown. */
export function Names(props: { kind: string; names: (string | null)[] }) {
  const first = props.names[0];
  if (first === undefined || first === null) return <span class="none">a unit of others</span>;
  const more = props.names.length - 1;
  return (
    <>
      <Link href={toUnit(props.kind, first)} class="name" title={first}>{first}</Link>
      {more > 0 && <span class="none"> and {more} more</span>}
    </>
  );
}

export function QuotaName(props: { name: string | null }) {
  return props.name ? <Link href={to("quotas", props.name)} class="name" title={props.name}>{props.name}</Link> : <span class="none">–</span>;
}

export function NodeName(props: { name: string | null }) {
  return props.name ? <Link href={to("node", props.name)} class="name" title={props.name}>{props.name}</Link> : <span class="none">a node</span>;
}

export function Count(props: { of: number }) {
  return <>{tellCount(props.of)}</>;
}

/** A count with commas between thousands. The browser has a way, too, which takes long when it is asked first. */
export function tellCount(count: number): string {
  return String(count).replace(/\B(?=(\d{3})+$)/g, ",");
}

/** A number of things: "1 pod", "2 pods". */
export function Things(props: { of: number; what: string }) {
  return <><Count of={props.of} /> {props.of === 1 ? props.what : `${props.what}s`}</>;
}

export interface Share {
  name: string;
  amount: number;
  /** The letter that stands for it where colours are not seen. */
  sign: string;
  style: string;
}

/** Parts of a whole as a bar; the legend beside it says the same in words. */
export function ShareBar(props: { shares: Share[]; label: string; tell: (share: Share) => string }) {
  const shown = props.shares.filter((share) => share.amount > 0);
  return (
    <div class="share-bar" role="img" aria-label={`${props.label}: ${shown.map(props.tell).join(", ")}`}>
      {shown.map((share, at) => (
        <span key={at} class={`share ${share.style}`} title={props.tell(share)}
          style={{ flexGrow: String(share.amount) }}>{share.sign}</span>
      ))}
    </div>
  );
}

/** What is missing in an answer, in one line, and how to get the right to see it. */
export function Gaps(props: { gaps: Gap[] | undefined }) {
  if (!props.gaps?.length) return null;
  const rights = props.gaps.filter((gap) => gap.because === "NoRight");
  return (
    <p class="gaps" role="note">
      <strong>Not everything is known:</strong>{" "}
      {props.gaps.map((gap) => `${gap.missing}: ${gap.then} (${WHY[gap.because] ?? gap.because})`).join("; ")}.
      {rights.length > 0 && (
        <> An administrator can grant it: <Copyable text="kubectl create clusterrolebinding koord-user-NAME --clusterrole=koord-user --user=NAME" /></>
      )}
    </p>
  );
}

/** Whether nothing is known of a kind, so that an empty list means nothing. */
export function isUnread(gaps: Gap[] | undefined, kind: string): boolean {
  return gaps?.some((gap) => gap.missing.replace(/^all /, "").startsWith(kind)) ?? false;
}

const WHY: Record<string, string> = {
  NoRight: "you may not list them",
  NotServed: "the cluster does not serve them",
  Stale: "what is known is old",
  NoLeader: "nobody leads the operators",
  Hidden: "not yours to see",
  TooExpensive: "too expensive",
  TooMany: "too many",
  NotStored: "not kept",
  NoFeed: "no records are read",
};

/** Words to copy, such as a command. */
export function Copyable(props: { text: string; shown?: string }) {
  const [isCopied, setCopied] = useState(false);
  const copy = () => {
    void navigator.clipboard.writeText(props.text).then(() => {
      setCopied(true);
      window.setTimeout(() => setCopied(false), 1500);
    }, () => undefined);
  };
  return (
    <button type="button" class="copy" onClick={copy} title={`Copy: ${props.text}`}>
      {isCopied ? "copied" : <code>{props.shown ?? props.text}</code>}
    </button>
  );
}

/** How to get the same as a command and over HTTP; `c` copies the command. */
export function Same(props: { command: string; url: string }) {
  return (
    <p class="same">
      <span id="command">The same: <Copyable text={props.command} /></span>{" "}
      <Copyable text={window.location.origin + props.url} shown="URL" />
    </p>
  );
}

export interface Column<R> {
  name: string;
  /** Reads nothing but the row: what ticks is a component of its own. */
  cell: (row: R) => ComponentChildren;
  /** Numbers are aligned to the right. */
  isNumber?: boolean;
  /** In rem; without one it takes what is left. Widths are given, for to find them the browser would measure all cells. */
  width?: number;
}

/** Of a column that takes what is left, at least. */
const WIDE = 14;

const ROW_HEIGHT = 34;
/** Rows beyond those in sight, on each side. */
const BEYOND = 6;
/** Rows that come at once when the reader scrolls. */
const STEP = 2;
const MOST_ROWS = 60;
/** Rows that are drawn anew in one frame: if more have changed the others follow in the next ones. */
const AT_ONCE = 10;

/** A table of which only the rows in sight are in the document; all have the same height. */
export function Table<R>(props: {
  label: string;
  columns: Column<R>[];
  order: string[];
  rows: Map<string, R>;
  total: number;
  empty: ComponentChildren;
  onMore?: () => void;
}) {
  const box = useRef<HTMLDivElement>(null);
  const slots = useRef<Slots<R>>({ keys: [], elements: [], more: 0, drawn: new Map() });
  const [, setFrame] = useState(0);
  const [at, setAt] = useState(0);
  const [height, setHeight] = useState(() => Math.max(320, window.innerHeight - 240));
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const measure = () => setHeight(element.clientHeight);
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const first = Math.max(0, at - BEYOND);
  const count = Math.min(MOST_ROWS, Math.ceil(height / ROW_HEIGHT) + 2 * BEYOND);
  const shown = props.order.slice(first, first + count);
  const rows = shown.map((key, below) => ({ row: props.rows.get(key), columns: props.columns, number: first + below + 2 }));
  const isLeft = draw(slots.current, assign(slots.current, shown, first, count, box.current), rows, at - first);
  useEffect(() => {
    if (!isLeft) return undefined;
    const frame = requestAnimationFrame(() => setFrame((before) => before + 1));
    return () => cancelAnimationFrame(frame);
  });
  const isShort = props.order.length < props.total || shown.some((key) => !props.rows.has(key));
  const isInSight = first + count >= props.order.length - BEYOND || shown.some((key) => !props.rows.has(key));
  useEffect(() => {
    if (isShort && isInSight) props.onMore?.();
  });
  if (!props.total) return <p class="empty">{props.empty}</p>;
  const left = Math.max(0, Math.max(props.order.length, props.total) - first - shown.length);
  const least = props.columns.reduce((sum, column) => sum + (column.width ?? WIDE), 0);
  return (
    <div class="table" ref={box} onScroll={(event) => setAt(STEP * Math.floor(event.currentTarget.scrollTop / ROW_HEIGHT / STEP))}
      tabIndex={0} role="region" aria-label={props.label}>
      <table aria-rowcount={props.total + 1} style={{ minWidth: `${least}rem` }}>
        <thead>
          <tr aria-rowindex={1}>
            {props.columns.map((column) => (
              <th key={column.name} scope="col" class={styleOf(column)} style={{ width: column.width && `${column.width}rem` }}>{column.name}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {first > 0 && <Filler columns={props.columns.length} rows={first} />}
          {[...slots.current.drawn].map(([slot, each]) => <Row key={slot} {...each} />)}
          {left > 0 && <Filler columns={props.columns.length} rows={left} />}
        </tbody>
      </table>
    </div>
  );
}

/** Which element shows which row of a table, in order. */
interface Slots<R> {
  keys: string[];
  elements: number[];
  /** Elements that are made beyond those of a window. */
  more: number;
  /** What each shows: for some frames the row that it showed before. */
  drawn: Map<number, RowProps<R>>;
}

/** Return which element shows each row, the first of which has this number. An element stays at its place, and shows what comes
 * there: to change texts is quicker than to make elements or to move them. When the reader scrolls, those that go out of sight are
 * those that come in. The element in which the focus is goes with its row, and shows no other one. */
function assign<R>(slots: Slots<R>, keys: string[], first: number, count: number, box: HTMLElement | null): number[] {
  const elements = keys.map((_, at) => (first + at) % count);
  const row = document.activeElement?.closest("tbody tr");
  const focused = row && box?.contains(row) ? [...box.querySelectorAll("tbody tr:not(.filler)")].indexOf(row) : -1;
  const element = slots.elements[focused];
  if (element !== undefined) {
    const [now, other] = [keys.indexOf(slots.keys[focused]!), elements.indexOf(element)];
    if (other >= 0) elements[other] = now >= 0 ? elements[now]! : MOST_ROWS + (slots.more += 1);
    if (now >= 0) elements[now] = element;
  }
  Object.assign(slots, { keys, elements });
  return elements;
}

/** Show rows in their elements, as many as one frame has time for, from the first one in sight on; return whether some are left. */
function draw<R>(slots: Slots<R>, elements: number[], rows: RowProps<R>[], inSight: number): boolean {
  const before = slots.drawn;
  const drawn = rows.map((row, at) => {
    const old = before.get(elements[at]!);
    return old && old.row === row.row && old.columns === row.columns ? row : null;
  });
  let left = AT_ONCE;
  for (let step = 0; step < rows.length; step += 1) {
    const at = (inSight + step) % rows.length;
    const row = rows[at]!;
    if (drawn[at] || left <= 0) continue;
    drawn[at] = row;
    if (row.row !== undefined) left -= 1;
  }
  slots.drawn = new Map(elements.map((slot, at) => [slot, drawn[at] ?? before.get(slot) ?? { ...rows[at]!, row: undefined }]));
  return drawn.includes(null);
}

interface RowProps<R> {
  row: R | undefined;
  columns: Column<R>[];
  number: number;
}

/** A row, which is made again only if it is another one or stands elsewhere: of a list most rows stay as they are. */
class Row<R> extends Component<RowProps<R>> {
  override shouldComponentUpdate(next: RowProps<R>): boolean {
    const { row, columns, number } = this.props;
    return next.row !== row || next.columns !== columns || next.number !== number;
  }

  override render({ row, columns, number }: RowProps<R>): ComponentChildren {
    return (
      <tr aria-rowindex={number}>
        {row === undefined
          ? <td colSpan={columns.length} class="none">…</td>
          : columns.map((column) => (
            <td key={column.name} class={styleOf(column)}>{column.cell(row)}</td>
          ))}
      </tr>
    );
  }
}

function styleOf<R>(column: Column<R>): string | undefined {
  return column.isNumber ? "number" : undefined;
}

function Filler(props: { columns: number; rows: number }) {
  return (
    <tr aria-hidden="true" class="filler">
      <td colSpan={props.columns} style={{ height: `${props.rows * ROW_HEIGHT}px` }} />
    </tr>
  );
}

/** A field whose value is a parameter of the view; `isChoice`: one of the options, always. What is being
 * typed is kept here: the view is drawn again with each reading, with the value as it was before. */
export function Filter(props: {
  label: string; value: string; options?: string[]; isSearch?: boolean; isChoice?: boolean;
  onChange: (value: string) => void;
}) {
  const [typed, setTyped] = useState<string | null>(null);
  const change = (event: TargetedEvent<HTMLInputElement | HTMLSelectElement>) => {
    setTyped(null);
    props.onChange(event.currentTarget.value.trim());
  };
  const typing = {
    value: typed ?? props.value, onChange: change, spellcheck: false,
    onInput: (event: TargetedEvent<HTMLInputElement>) => setTyped(event.currentTarget.value),
    onBlur: () => setTyped(null),
  };
  return (
    <label class="filter">
      <span>{props.label}</span>
      {props.options && (
        <select value={props.value} onChange={change}>
          {!props.isChoice && <option value="">all</option>}
          {props.options.map((option) => <option key={option} value={option}>{option}</option>)}
        </select>
      )}
      {!props.options && props.isSearch && (
        <input type="search" id="search" {...typing} maxLength={64} />
      )}
      {!props.options && !props.isSearch && (
        <input type="text" {...typing} maxLength={253} />
      )}
    </label>
  );
}

/** What stands in the place of an answer that is not there: why, if it is known. */
export function Missing(props: { message: string }) {
  const message = props.message || (problem.value && `The server cannot tell: ${problem.value}`);
  return <p class={message ? "missing" : "waiting-for"} role="status">{message || "Asking …"}</p>;
}
