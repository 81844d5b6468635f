import type { CompositeMapper, DictionaryMapper, EnumMapper, Mapper, SequenceMapper } from "@azure/core-client";
import * as mappers from "../sdk/src/models/mappers.js";

type Json = Record<string, unknown>;

// check compares a typed result with its body, using the models of the client: every field must be known and of its type, and
// required fields must be present.
export function check(model: keyof typeof mappers, value: unknown, body: string): void {
  let complaints: string[];
  try {
    complaints = differences("", mappers[model] as Mapper, value, JSON.parse(body));
  } catch (error) {
    throw new Error(`as ${model}: ${error}\nthe body was ${body}`);
  }
  if (complaints.length > 0) throw new Error(`as ${model}:\n  ${complaints.join("\n  ")}\nthe body was ${body}`);
}

function differences(path: string, mapper: Mapper, value: unknown, raw: unknown): string[] {
  const wrong = [`${path}: ${JSON.stringify(raw)} became ${JSON.stringify(value)}, as ${mapper.type.name}`];
  switch (mapper.type.name) {
    case "Composite":
      if (!isObject(value) || !isObject(raw)) return wrong;
      return ofComposite(path, mapper as CompositeMapper, value, raw);
    case "Dictionary": {
      if (!isObject(value) || !isObject(raw)) return wrong;
      const { value: element } = (mapper as DictionaryMapper).type;
      return [...new Set([...Object.keys(raw), ...Object.keys(value)])].flatMap((key) => differences(`${path}[${key}]`, element, value[key], raw[key]));
    }
    case "Sequence": {
      if (!Array.isArray(value) || !Array.isArray(raw) || value.length !== raw.length) return wrong;
      const { element } = (mapper as SequenceMapper).type;
      return raw.flatMap((item, i) => differences(`${path}[${i}]`, element, value[i], item));
    }
    case "DateTime":
      return value instanceof Date && value.getTime() === Date.parse(raw as string) ? [] : wrong;
    case "Enum":
      return value === raw && (mapper as EnumMapper).type.allowedValues.includes(value) ? [] : wrong;
    case "Number":
      return typeof value === "number" && value === raw ? [] : wrong;
    case "Boolean":
      return typeof value === "boolean" && value === raw ? [] : wrong;
    case "String":
    case "Uuid":
      return typeof value === "string" && value === raw ? [] : wrong;
  }
  return [`${path}: the client has it as ${mapper.type.name}`];
}

function ofComposite(path: string, { type }: CompositeMapper, value: Json, raw: Json): string[] {
  const properties = type.modelProperties ?? (mappers[type.className as keyof typeof mappers] as CompositeMapper).type.modelProperties!;
  const complaints: string[] = [];
  const known = new Set<string>();
  for (const [name, property] of Object.entries(properties)) {
    const at = `${path}.${name}`;
    known.add(property.serializedName!);
    const given = raw[property.serializedName!];
    if (given !== undefined) complaints.push(...differences(at, property, value[name], given));
    else if (property.required) complaints.push(`${at}: is required and not there`);
    else if (value[name] !== undefined) complaints.push(`${at}: the client makes ${JSON.stringify(value[name])} of what is not there`);
  }
  for (const name of Object.keys(raw)) {
    if (!known.has(name)) complaints.push(`${path}.${name}: the client has no word for it`);
  }
  return complaints;
}

function isObject(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
