variable "config" {
  description = "The rendered configuration of a stamp."
  type        = any
}

variable "tables" {
  description = "What the programs of the region require: containers, roles, topic spaces, service accounts, secrets."
  type        = any
}

variable "outer" {
  description = "The outputs of the outer scopes, by scope."
  type        = any
  default     = {}
}

variable "allow_loss" {
  description = "Permit plans that delete data stores."
  type        = bool
  default     = false
}
