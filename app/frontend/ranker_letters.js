// Letters that need care: which way a text runs, and characters that nobody sees.
//
// A character that is invisible, or that reorders what stands around it, never reaches the page: a small mark with its
// name stands in its place. Joiners and selectors stay where a script or an emoji needs them.

/** @type {Record<number, [short: string, name: string]>} */
const NAMES = {
  0x00ad: ["SHY", "Soft hyphen"],
  0x034f: ["CGJ", "Combining grapheme joiner"],
  0x061c: ["ALM", "Arabic letter mark"],
  0x115f: ["HF", "Hangul filler"],
  0x1160: ["HF", "Hangul filler"],
  0x180e: ["MVS", "Mongolian vowel separator"],
  0x200b: ["ZWSP", "Zero-width space"],
  0x200c: ["ZWNJ", "Zero-width non-joiner"],
  0x200d: ["ZWJ", "Zero-width joiner"],
  0x200e: ["LRM", "Left-to-right mark"],
  0x200f: ["RLM", "Right-to-left mark"],
  0x2028: ["LS", "Line separator"],
  0x2029: ["PS", "Paragraph separator"],
  0x202a: ["LRE", "Left-to-right embedding"],
  0x202b: ["RLE", "Right-to-left embedding"],
  0x202c: ["PDF", "Pop directional formatting"],
  0x202d: ["LRO", "Left-to-right override"],
  0x202e: ["RLO", "Right-to-left override"],
  0x2060: ["WJ", "Word joiner"],
  0x2066: ["LRI", "Left-to-right isolate"],
  0x2067: ["RLI", "Right-to-left isolate"],
  0x2068: ["FSI", "First strong isolate"],
  0x2069: ["PDI", "Pop directional isolate"],
  0x3164: ["HF", "Hangul filler"],
  0xfeff: ["BOM", "Byte order mark"],
  0xffa0: ["HF", "Hangul filler"],
};
const CONTROLS = (
  "NUL SOH STX ETX EOT ENQ ACK BEL BS HT LF VT FF CR SO SI DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB " +
  "ESC FS GS RS US"
).split(" ");

const EMOJI = String.raw`\p{Extended_Pictographic}(?:\p{EMod}|\ufe0f)?`;
const JOINING = [
  "Arabic",
  "Syriac",
  "Mongolian",
  "Nko",
  "Mandaic",
  "Adlam",
  "Devanagari",
  "Bengali",
  "Gurmukhi",
  "Gujarati",
  "Oriya",
  "Tamil",
  "Telugu",
  "Kannada",
  "Malayalam",
  "Sinhala",
  "Khmer",
  "Myanmar",
  "Tibetan",
  "Thai",
  "Lao",
];
const SCRIPTS = `[${JOINING.map((name) => String.raw`\p{scx=${name}}`).join("")}]`;
const UNSPACED = String.raw`[\p{scx=Thai}\p{scx=Lao}\p{scx=Khmer}\p{scx=Myanmar}\p{scx=Tibetan}]`;
const FLAG = String.raw`\u{1f3f4}[\u{e0061}-\u{e007a}\u{e0030}-\u{e0039}]{2,6}\u{e007f}`;
const HIDDEN =
  String.raw`[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u180e\u200b-\u200f` +
  String.raw`\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e007f}\u{e0100}-\u{e01ef}]`;
// Kept as they are: emoji with their joiners, flags, variants of a letter, and joiners and spaces within scripts that are
// written with them.
const NEEDED =
  `${FLAG}|${EMOJI}(?:\\u200d${EMOJI})+|(?!${HIDDEN})[^][\\ufe00-\\ufe0f]|` +
  `(?<=\\p{Script=Han})[\\u{e0100}-\\u{e01ef}]|(?<=${SCRIPTS})[\\u200c\\u200d]|` +
  `(?<=${UNSPACED})\\u200b(?=${UNSPACED})`;
const PIECES = new RegExp(`(${NEEDED})|(${HIDDEN})`, "gu");
const MAY_HIDE = new RegExp(HIDDEN, "u");

const RIGHT =
  /[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}\p{Script=Adlam}\p{Script=Samaritan}\p{Script=Mandaic}]/gu;
const LETTERS = /\p{L}/gu;
const CODE = /^ {0,3}(```+|~~~+)[\s\S]*?(?:^ {0,3}\1|$(?![\s\S]))|`[^`\n]*`|https?:\/\/\S+/gm;
const RIGHT_SHARE = 0.4; // below one half: these scripts leave most vowels out, so their words are shorter
const LOOK_AT = 20_000; // characters that decide; the rest of a longer text will not change its direction

/**
 * "rtl" or "ltr" by the script that most of the text's letters are of; code and addresses do not count.
 * @param {string} text
 */
export function directionOf(text) {
  const words = text.slice(0, LOOK_AT).replace(CODE, " ");
  const right = words.match(RIGHT)?.length ?? 0;
  if (!right) return "ltr";
  return right >= RIGHT_SHARE * (words.match(LETTERS)?.length ?? 0) ? "rtl" : "ltr";
}

/** @param {string} text */
export const hasHidden = (text) => MAY_HIDE.test(text);

/**
 * Append a text to an element, with a mark for each character that would not be seen.
 * @param {Node & ParentNode} parent
 * @param {string} text
 */
export function appendText(parent, text) {
  if (!hasHidden(text)) {
    parent.append(text);
    return;
  }
  let done = 0;
  for (const match of text.matchAll(PIECES)) {
    if (!match[2]) continue;
    if (match.index > done) parent.append(text.slice(done, match.index));
    parent.append(mark(match[2].codePointAt(0) ?? 0));
    done = match.index + match[2].length;
  }
  if (done < text.length) parent.append(text.slice(done));
}

/** @param {number} code */
function mark(code) {
  const hex = `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
  const [short, name] =
    NAMES[code] ?? (code < 32 ? [CONTROLS[code], "Control character"] : [hex, "Invisible character"]);
  const element = document.createElement("span");
  element.className = "hidden-letter";
  element.dir = "ltr";
  element.title = `${name} (${hex}): it stands in the text here and would not be seen`;
  element.textContent = short;
  return element;
}
